"""The operations that are served, by their names in the SDK."""

from __future__ import annotations

from webadmin.lanes.catalog.api.operation_view import Operation
from webadmin.lanes.catalog.api.resources import (
    branches,
    commits,
    diffs,
    downloads,
    imports,
    links,
    merges,
    objects,
    protection,
    repositories,
    server,
    tags,
    uploads,
)

REPOSITORY = "repositories/{repository}"
BRANCH = REPOSITORY + "/branches/{branch}"
REF = REPOSITORY + "/refs/{ref}"
TAG = REPOSITORY + "/tags/{tag}"

READING = (
    Operation("health_check", "GET", "healthcheck", server.healthcheck, is_open=True),
    Operation("get_config", "GET", "config", server.get_config),
    Operation("list_repositories", "GET", "repositories", repositories.list_them),
    Operation("get_repository", "GET", REPOSITORY, repositories.read),
    Operation("get_repository_metadata", "GET", REPOSITORY + "/metadata", repositories.read_metadata),
    Operation("get_branch_protection_rules", "GET", REPOSITORY + "/settings/branch_protection", protection.read),
    Operation("list_branches", "GET", REPOSITORY + "/branches", branches.list_them),
    Operation("get_branch", "GET", BRANCH, branches.read),
    Operation("diff_branch", "GET", BRANCH + "/diff", diffs.uncommitted),
    Operation("import_status", "GET", BRANCH + "/import", imports.status),
    Operation("list_tags", "GET", REPOSITORY + "/tags", tags.list_them),
    Operation("get_tag", "GET", TAG, tags.read),
    Operation("get_commit", "GET", REPOSITORY + "/commits/{commit}", commits.read),
    Operation("log_commits", "GET", REF + "/commits", commits.log),
    Operation("diff_refs", "GET", REPOSITORY + "/refs/{left}/diff/{right}", diffs.between),
    Operation("find_merge_base", "GET", REF + "/merge/{branch}", merges.find_base),
    Operation("list_objects", "GET", REF + "/objects/ls", objects.list_them),
    Operation("stat_object", "GET", REF + "/objects/stat", objects.stat),
    Operation("head_object", "HEAD", REF + "/objects", downloads.head),
    Operation("get_object", "GET", REF + "/objects", downloads.download),
)
WRITING = (
    Operation("create_repository", "POST", "repositories", repositories.create, writes=True),
    Operation("delete_repository", "DELETE", REPOSITORY, repositories.delete, writes=True),
    Operation(
        "set_branch_protection_rules",
        "PUT",
        REPOSITORY + "/settings/branch_protection",
        protection.write,
        writes=True,
    ),
    Operation("create_branch", "POST", REPOSITORY + "/branches", branches.create, writes=True),
    Operation("reset_branch", "PUT", BRANCH, branches.reset, writes=True),
    Operation("delete_branch", "DELETE", BRANCH, branches.delete, writes=True),
    Operation("commit", "POST", BRANCH + "/commits", commits.commit, writes=True),
    Operation("merge_into_branch", "POST", REF + "/merge/{branch}", merges.merge, writes=True),
    Operation("revert_branch", "POST", BRANCH + "/revert", merges.revert, writes=True),
    Operation("cherry_pick", "POST", BRANCH + "/cherry-pick", merges.pick, writes=True),
    Operation("import_start", "POST", BRANCH + "/import", imports.start, writes=True),
    Operation("import_cancel", "DELETE", BRANCH + "/import", imports.cancel, writes=True),
    Operation("create_tag", "POST", REPOSITORY + "/tags", tags.create, writes=True),
    Operation("delete_tag", "DELETE", TAG, tags.delete, writes=True),
    Operation("upload_object", "POST", BRANCH + "/objects", uploads.upload, writes=True),
    Operation("delete_object", "DELETE", BRANCH + "/objects", objects.delete, writes=True),
    Operation("delete_objects", "POST", BRANCH + "/objects/delete", objects.delete_several, writes=True),
    Operation("copy_object", "POST", BRANCH + "/objects/copy", objects.copy, writes=True),
    Operation(
        "update_object_user_metadata",
        "PUT",
        BRANCH + "/objects/stat/user_metadata",
        objects.set_metadata,
        writes=True,
    ),
    Operation("get_physical_address", "GET", BRANCH + "/staging/backing", links.address, writes=True),
    Operation("link_physical_address", "PUT", BRANCH + "/staging/backing", links.link, writes=True),
)
OPERATIONS = READING + WRITING
