"""Everything that reads or changes the catalog; each service is one transaction, or says where it is several."""
