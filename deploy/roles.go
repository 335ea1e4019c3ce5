package deploy

import _ "embed"

// Roles makes the three roles of the database: who owns, who serves, who reads. Tests make
// them too, so that what production's role may not do fails there.
//
//go:embed roles.sql
var Roles string
