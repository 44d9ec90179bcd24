"""This app owns the metadata of the objects in the bucket."""

from django.apps import AppConfig

from webadmin.adminkit.navigation import Group, Link


class IndexConfig(AppConfig):
    name = "webadmin.lanes.profiles"
    label = "profiles"
    verbose_name = "Profiles"
    navigation = (
        Group(
            11,
            "Schedule",
            [
                Link("Level queues", "stacks", "profiles.levelqueue"),
            ],
        ),
        Group(
            12,
            "Schedule",
            [
                Link("Quarantine", "coronavirus", "profiles.quarantine"),
            ],
        ),
        Group(
            20,
            "Profiles",
            [
                Link("Blocks", "deployed_code", "profiles.block"),
                Link("Tombstones", "auto_delete", "profiles.tombstone"),
                Link("Delete requests", "person_remove", "profiles.deleterequest"),
                Link("Dead letters", "mark_email_unread", "profiles.deadletter"),
                Link("Refused blocks", "block", "access.refusalcount"),
            ],
        ),
        Group(
            82,
            "Rules",
            [
                Link("Level policies", "rule", "profiles.levelpolicy"),
                Link("Retention", "event_busy", "profiles.retentionrule"),
                Link("Legal holds", "gavel", "profiles.legalhold"),
            ],
        ),
    )

    def ready(self) -> None:
        from webadmin.lanes.profiles.merge_lane import ProfilesLane
        from webadmin.schedule.lanes import register

        register(ProfilesLane())
