"""Services that read or change the catalog; each is one transaction unless its documentation says otherwise."""
