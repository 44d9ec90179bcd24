"""pprof profiles: parser, builder, selection and encoder."""
