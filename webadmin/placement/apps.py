"""The app of the segment writers and of the rules that map profiles to shards."""

from django.apps import AppConfig

from webadmin.adminkit.navigation import Group, Link


class PlacementConfig(AppConfig):
    name = "webadmin.placement"
    label = "placement"
    verbose_name = "Placement"
    navigation = (
        Group(
            60,
            "Placement",
            [
                Link("Ring and load", "donut_large", "placement-page"),
                Link("Segment writers", "edit_note", "placement.instance"),
                Link("Rule versions", "account_tree", "placement.rulesversion"),
                Link("Rules by dataset", "timeline", "placement.rulechange"),
                Link("Placement limits", "straighten", "placement.placementlimit"),
                Link("Overrides and pins", "push_pin", "placement.placementoverride"),
                Link("Decisions", "gavel", "placement.placementchange"),
                Link("Ring changes", "sync_alt", "placement.ringchange"),
            ],
        ),
    )
