package main

import (
	"fmt"
	"slices"

	"sandyard/app"
	"sandyard/models"
)

// storeOnly configures the subcommands that only talk to the database.
type storeOnly struct{ app.Common }

// Validate needs no Redis.
func (c storeOnly) Validate() error {
	if c.DatabaseURL == "" {
		return fmt.Errorf("DATABASE_URL is missing: set it to your PostgreSQL, such as postgres://user:password@host/sandyard, or run sandyard dev in this directory")
	}
	return nil
}

func parseScopes(args []string) ([]string, error) {
	if len(args) == 0 {
		return []string{models.ScopeSandboxes}, nil
	}
	known := models.Scopes()
	for _, a := range args {
		if !slices.Contains(known, a) {
			return nil, fmt.Errorf("unknown scope %q; use one of %v", a, known)
		}
	}
	return args, nil
}
