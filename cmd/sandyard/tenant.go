package main

import (
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"os"
	"strings"
	"text/tabwriter"
	"time"

	"sandyard/app"
	"sandyard/models"
)

// listedTenants is how many tenants are listed.
const listedTenants = 10000

func tenantUsage(f *flag.FlagSet, command string) func() {
	return func() {
		name, options := " NAME", " [OPTION...]"
		if command == "list" {
			name, options = "", ""
		}
		fmt.Fprintf(f.Output(), "Usage: sandyard tenant %s%s%s\n\n", command, options, name)
		fmt.Fprintln(f.Output(), map[string]string{
			"list": "Use it to list the tenants: name, limits, live sandboxes, creation time.",
			"add": "Use it to add a tenant, whose first API key is printed once. NAME has up to 63 of a-z, 0-9 and -, and begins with a\n" +
				"letter or a digit. sandyard key --tenant NAME and sandyard user --tenant NAME make keys and users for it.",
			"set": "Use it to change the limits of a tenant, or which providers make its sandboxes. Each API process\n" +
				"knows the new ones within seconds. The providers must be among the API's SANDBOX_PROVIDERS.",
		}[command])
		f.PrintDefaults()
	}
}

func runTenant(ctx context.Context, args []string) error {
	const usage = "use list, add or set, such as: sandyard tenant add NAME"
	if len(args) == 0 {
		return errors.New(usage)
	}
	command := args[0]
	if command != "list" && command != "add" && command != "set" {
		if command == "--help" || command == "-h" || command == "help" {
			fmt.Println("sandyard tenant:", usage)
			return flag.ErrHelp
		}
		return fmt.Errorf("unknown command %q: %s", command, usage)
	}
	limits, places := models.Ceilings{}, (*[]string)(nil)
	f := flag.NewFlagSet("sandyard tenant "+command, flag.ContinueOnError)
	f.Usage = tenantUsage(f, command)
	if command != "list" {
		limits = addCeilings(f)
	}
	if command == "set" {
		const about = "providers of sandboxes whose request and template name none, in the order in which they are " +
			"asked, comma-separated; none = the server's"
		f.Func("providers", about, func(text string) (err error) {
			places, err = providersOf(text)
			return err
		})
	}
	names, err := mixed(f, args[1:])
	switch {
	case err != nil:
		return err
	case command == "list" && len(names) > 0:
		return errors.New("list takes no name")
	case command != "list" && len(names) != 1:
		return fmt.Errorf("%s takes one NAME; see sandyard tenant %s --help", command, command)
	case command == "set" && len(limits) == 0 && places == nil:
		return errors.New("nothing to set: give a limit, such as --max-sandboxes, or --providers")
	}
	return withStore(ctx, func(store *models.Store, _ *slog.Logger) error {
		switch command {
		case "add":
			return addTenant(ctx, store, names[0], limits)
		case "set":
			return setTenant(ctx, store, names[0], limits, places)
		}
		return listTenants(ctx, store, os.Stdout)
	})
}

func addTenant(ctx context.Context, store *models.Store, name string, limits models.Ceilings) error {
	if err := store.BootstrapWith(ctx, nil); err != nil {
		return err
	}
	key, err := store.CreateTenant(ctx, name, limits)
	if err != nil {
		return err
	}
	fmt.Printf("Tenant %s\nFirst API key, scopes: %s, %s; shown only once: %s\n", name, models.ScopeSandboxes, models.ScopeAdmin, key)
	return nil
}

// providersOf reads a list of providers.
func providersOf(text string) (*[]string, error) {
	names := []string{}
	if text != noLimit {
		names = strings.Split(text, ",")
	}
	if err := app.CheckProviders(names); err != nil {
		return nil, fmt.Errorf("the list %w", err)
	}
	return &names, nil
}

// setTenant changes limits, and the providers unless that is nil.
func setTenant(ctx context.Context, store *models.Store, name string, limits models.Ceilings, places *[]string) error {
	var err error
	if len(limits) > 0 { // first: a limit may be refused
		err = store.ChangeTenant(ctx, name, limits)
	}
	if err == nil && places != nil {
		err = store.SetProviders(ctx, name, *places)
	}
	if errors.Is(err, models.ErrNotFound) {
		return fmt.Errorf("there is no tenant %q; see sandyard tenant list", name)
	}
	return err
}

func listTenants(ctx context.Context, store *models.Store, to io.Writer) error {
	all, err := store.Tenants(ctx, listedTenants)
	if err != nil {
		return err
	}
	w := tabwriter.NewWriter(to, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "NAME\tLIVE SANDBOXES\tMAX SANDBOXES\tMAX QUEUED\tMAX CPUS\tMAX MEMORY MIB\tJOB RATE\tJOB BURST\tPROVIDERS\tCREATED")
	for _, t := range all {
		fmt.Fprintf(w, "%s\t%d\t%d\t%d\t%s\t%s\t%s\t%s\t%s\t%s\n", t.ID, t.Live, t.MaxSandboxes, t.MaxQueued, ceiling(t.Quota.MaxCPUs), ceiling(t.Quota.MaxMemoryMiB),
			ceiling(t.Rate.JobRate), burst(t.Rate), cmp.Or(strings.Join(t.Providers, ","), noLimit), t.CreatedAt.UTC().Format(time.RFC3339))
	}
	return w.Flush()
}
