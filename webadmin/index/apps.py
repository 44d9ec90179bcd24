"""This app owns what is known of the objects in the bucket."""

from django.apps import AppConfig


class IndexConfig(AppConfig):
    name = "webadmin.index"
    label = "index"
    verbose_name = "Index"

    def ready(self) -> None:
        from webadmin.index.merge_lane import ProfilesLane
        from webadmin.schedule.lanes import register

        register(ProfilesLane())
