"""This app owns what is known of the objects in the bucket."""

from django.apps import AppConfig


class IndexConfig(AppConfig):
    name = "webadmin.lanes.profiles"
    label = "profiles"
    verbose_name = "Profiles"

    def ready(self) -> None:
        from webadmin.lanes.profiles.merge_lane import ProfilesLane
        from webadmin.schedule.lanes import register

        register(ProfilesLane())
