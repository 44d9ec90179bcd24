"""The versioned catalog: repositories, branches, commits, what is staged on branches, and who keeps it tidy."""
