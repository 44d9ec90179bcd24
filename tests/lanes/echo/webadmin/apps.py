"""The app: its name, its links in the side bar, and the registration of the lane."""

from django.apps import AppConfig

from webadmin.adminkit.navigation import Group, Link


class EchoConfig(AppConfig):
    name = "tests.lanes.echo.webadmin"
    label = "echo"
    verbose_name = "Text files"
    navigation = (Group(60, "Text files", [Link("Files", "description", "echo.textfile")]),)

    def ready(self) -> None:
        from tests.lanes.echo.webadmin.lane import EchoLane
        from webadmin.schedule.lanes import register

        register(EchoLane())
