"""pprof messages: parse, build, select and encode."""
