"""The OpenAPI security scheme of worker credentials. Loaded when the app is ready, not with the REST settings."""

from __future__ import annotations

from drf_spectacular.extensions import OpenApiAuthenticationExtension


class WorkerAuthenticationScheme(OpenApiAuthenticationExtension):
    """``Authorization: Bearer lw_…``."""

    target_class = "webadmin.base.access.authentication.WorkerAuthentication"
    name = "worker"

    def get_security_definition(self, auto_schema: object) -> dict[str, str]:
        return {"type": "http", "scheme": "bearer", "description": "A worker credential: lw_<key id>_<secret>"}
