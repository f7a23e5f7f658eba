"""Who may do what by RBAC manifests alone, as a cluster that had them would answer."""
