"""Operations about the server itself, which clients call first."""

from __future__ import annotations

from django.http import HttpResponse

from engine.core.version import VERSION
from webadmin.lanes.catalog.api.answers import answer, nothing
from webadmin.lanes.catalog.api.calls import Call
from webadmin.lanes.catalog.places import catalog_store

NAMESPACES = "^(s3|gs|https?|mem|local|transient)://.*$"
"""The pattern of storage namespaces for the SDK; the namespace is only a name, objects are in the platform's store."""
IMPORTS = "^(s3|file)://.+$"


def healthcheck(call: Call) -> HttpResponse:
    """Return success."""
    return nothing()


def get_config(call: Call) -> HttpResponse:
    """Return the store's capabilities for the SDK: no presigned URLs; prefixes can be imported."""
    kind = "s3" if catalog_store().url.startswith("s3:") else "local"
    storage = {
        "blockstore_type": kind,
        "blockstore_namespace_example": f"{kind}://example-repository",
        "blockstore_namespace_ValidityRegex": NAMESPACES,
        "pre_sign_support": False,
        "pre_sign_support_ui": False,
        "pre_sign_multipart_upload": False,
        "import_support": True,
        "import_validity_regex": IMPORTS,
    }
    version = {"version": VERSION, "version_context": "lithify", "upgrade_recommended": False}
    return answer({"version_config": version, "storage_config": storage})
