"""What every room uses: errors, ids, checksums, checked readers, sizes, scratch folders."""
