"""Where profiles are written: segment writers and their shards, the rules of placement, and who may change them."""
