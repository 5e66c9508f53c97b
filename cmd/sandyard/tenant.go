package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"sandyard/app"
	"sandyard/models"
)

// listedTenants is how many tenants are listed.
const listedTenants = 10000

func tenantCommand() *cobra.Command {
	limits, places, keys := models.Ceilings{}, (*[]string)(nil), models.ProviderKeys{}
	add := &cobra.Command{
		Use: "add NAME", Short: "add a tenant with its first key", Args: one("NAME"),
		Long: "Add a tenant, whose first API key is printed once. NAME has up to 63 of a-z, 0-9 and -, and begins with a\n" +
			"letter or a digit. sandyard key --tenant NAME and sandyard user --tenant NAME make keys and users for it.",
		RunE: onStore(func(ctx context.Context, store *models.Store, args []string) error {
			return addTenant(ctx, store, args[0], limits)
		}),
	}
	set := &cobra.Command{
		Use: "set NAME", Short: "change the limits and providers of a tenant", Args: one("NAME"),
		Long: "Change the limits of a tenant, which providers make its sandboxes, or with which of its secrets as keys.\n" +
			"Each API process knows new limits within seconds. The providers must be among the API's SANDBOX_PROVIDERS.",
		PreRunE: func(*cobra.Command, []string) error {
			if len(limits) == 0 && places == nil && len(keys) == 0 {
				return errors.New("nothing to set: give a limit, such as --max-sandboxes, --providers or --provider-key")
			}
			return nil
		},
		RunE: onStore(func(ctx context.Context, store *models.Store, args []string) error {
			return setTenant(ctx, store, args[0], limits, places, keys)
		}),
	}
	addCeilings(add.Flags(), limits)
	addCeilings(set.Flags(), limits)
	set.Flags().Func("providers", "providers of sandboxes whose request and template name none, in the order in which they are "+
		"asked, comma-separated; none = the server's", func(text string) (err error) {
		places, err = providersOf(text)
		return err
	})
	set.Flags().Func("provider-key", "provider=NAME: the tenant's secret NAME is its own key of the provider, for new sandboxes; "+
		"provider= removes it; may be given several times", func(text string) error {
		return addProviderKey(keys, text)
	})
	return group("tenant", "list the tenants, add one with its first key, or change limits and providers", add, set, &cobra.Command{
		Use: "list", Short: "list the tenants: name, limits, live sandboxes, creation time", Args: noArguments,
		RunE: onStore(func(ctx context.Context, store *models.Store, _ []string) error {
			return listTenants(ctx, store, os.Stdout)
		}),
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

// addProviderKey reads one provider=NAME.
func addProviderKey(keys models.ProviderKeys, text string) error {
	provider, name, ok := strings.Cut(text, "=")
	if !ok || !slices.Contains(app.KeyedProviders(), provider) {
		return fmt.Errorf("it must be provider=NAME, with one of the providers %v and the name of a secret", app.KeyedProviders())
	}
	keys[provider] = name
	return nil
}

// setTenant changes limits and keys of providers, and the providers unless that is nil.
func setTenant(ctx context.Context, store *models.Store, name string, limits models.Ceilings, places *[]string, keys models.ProviderKeys) error {
	var err error
	if len(limits) > 0 { // first: a limit may be refused
		err = store.ChangeTenant(ctx, name, limits)
	}
	if err == nil && len(keys) > 0 {
		err = store.SetProviderKeys(ctx, name, keys)
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
	fmt.Fprintln(w, "NAME\tLIVE SANDBOXES\tMAX SANDBOXES\tMAX QUEUED\tMAX CPUS\tMAX MEMORY MIB\tJOB RATE\tJOB BURST\tPROVIDERS\tPROVIDER KEYS\tCREATED")
	for _, t := range all {
		fmt.Fprintf(w, "%s\t%d\t%d\t%d\t%s\t%s\t%s\t%s\t%s\t%s\t%s\n", t.ID, t.Live, t.MaxSandboxes, t.MaxQueued, ceiling(t.Quota.MaxCPUs), ceiling(t.Quota.MaxMemoryMiB),
			ceiling(t.Rate.JobRate), burst(t.Rate), cmp.Or(strings.Join(t.Providers, ","), noLimit), cmp.Or(keyNames(t.ProviderKeys), noLimit), t.CreatedAt.UTC().Format(time.RFC3339))
	}
	return w.Flush()
}

// keyNames shows the names of the secrets that are keys of providers.
func keyNames(keys models.ProviderKeys) string {
	var all []string
	for _, provider := range slices.Sorted(maps.Keys(keys)) {
		all = append(all, provider+"="+keys[provider])
	}
	return strings.Join(all, ",")
}
