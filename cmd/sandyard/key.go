package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"sandyard/models"
)

const (
	tenant = "default"
	// listedKeys is how many keys are listed, the newest.
	listedKeys = 1000
)

const keyHelp = `List, create, rotate or revoke API keys:
  sandyard key                            list the keys: id, name, first characters, scopes, and when created, used,
                                          expired, revoked
  sandyard key [--e2b] NAME [SCOPE...]    create a key and print it once
  sandyard key --rotate [--overlap D] ID  create a key with the same name and scopes; the old one stays valid
                                          for a while
  sandyard key --revoke [ID...]           revoke keys and end their open terminals and streams

NAME    1 to 100 printable characters; no two valid keys have the same name
SCOPE   sandboxes (the tenant's work; the default) or a part of it: jobs, files, templates, webhooks;
        admin (the tenant's keys, users and secrets), operator (that, tenants, workers, shared templates,
        /metrics, /monitor)
ID      from the list. Without an ID, keys or ids are read from standard input, one per line: a key on the
        command line would show in the shell's history and in the process list`

// keyOptions are the options of sandyard key.
type keyOptions struct {
	tenant, user   string
	revoke, rotate bool
	overlap        time.Duration
	made           models.NewKey
}

func keyCommand() *cobra.Command {
	var o keyOptions
	c := &cobra.Command{
		Use: "key [NAME [SCOPE...]]", Short: "list, create, rotate or revoke API keys", Long: keyHelp,
		RunE: func(c *cobra.Command, args []string) error { return runKey(c.Context(), o, args) },
	}
	f := c.Flags()
	f.BoolVar(&o.made.E2B, "e2b", false, "create the key in the format that E2B clients expect")
	f.DurationVar(&o.made.Life, "expires", 0, "time after which the key is refused, such as 720h; 0 = never")
	f.StringVar(&o.tenant, "tenant", tenant, "the tenant whose keys these are")
	f.StringVar(&o.user, "user", "", "the user whose key it is: the user's limits hold for it")
	f.BoolVar(&o.revoke, "revoke", false, "revoke keys")
	f.BoolVar(&o.rotate, "rotate", false, "create a key in place of another one")
	f.DurationVar(&o.overlap, "overlap", 24*time.Hour, "time that a rotated key still works")
	c.MarkFlagsMutuallyExclusive("revoke", "rotate")
	return c
}

func runKey(ctx context.Context, o keyOptions, args []string) (err error) {
	switch {
	case o.revoke:
		return revokeKeys(ctx, o.tenant, args, os.Stdin)
	case o.rotate && (len(args) != 1 || models.IsKey(args[0])):
		return errors.New("give one id, such as: sandyard key --rotate key_…; sandyard key lists the ids")
	case o.overlap < 0:
		return errors.New("--overlap must be at least 0")
	case o.rotate:
		return withStore(ctx, func(store *models.Store, _ *slog.Logger) error {
			return rotateKey(ctx, store, o.tenant, args[0], o.overlap)
		})
	case len(args) == 0 && o.made.E2B:
		return errors.New("give the key a name, such as: sandyard key --e2b ci")
	case len(args) == 0:
		return withStore(ctx, func(store *models.Store, _ *slog.Logger) error {
			return listKeys(ctx, store, o.tenant, os.Stdout)
		})
	}
	o.made.Name = args[0]
	if o.made.Scopes, err = parseScopes(args[1:]); err != nil {
		return err
	}
	return withStore(ctx, func(store *models.Store, _ *slog.Logger) error {
		return makeKey(ctx, store, o.tenant, o.user, o.made)
	})
}

// makeKey makes the tenant, too, where no API process has run on the database yet.
func makeKey(ctx context.Context, store *models.Store, tenant, user string, k models.NewKey) error {
	if err := store.BootstrapWith(ctx, nil); err != nil {
		return err
	}
	if _, err := store.Tenant(ctx, tenant); errors.Is(err, models.ErrNotFound) {
		return fmt.Errorf("there is no tenant %q; see sandyard tenant list", tenant)
	} else if err != nil {
		return err
	}
	if user != "" {
		of, err := userNamed(ctx, store, tenant, user)
		if err != nil {
			return err
		}
		k.User = of.ID
	}
	plain, err := store.MakeKey(ctx, tenant, k)
	if err != nil {
		return err
	}
	return printKey(ctx, store, plain)
}

func rotateKey(ctx context.Context, store *models.Store, tenant, id string, overlap time.Duration) error {
	plain, err := store.RotateKey(ctx, tenant, id, overlap)
	if err != nil {
		return fmt.Errorf("rotate %s: %w; sandyard key lists the ids", shown(id), err)
	}
	if err := printKey(ctx, store, plain); err != nil {
		return err
	}
	fmt.Printf("%s still works for %v\n", id, overlap)
	return nil
}

func printKey(ctx context.Context, store *models.Store, plain string) error {
	made, err := store.Authenticate(ctx, plain)
	if err != nil {
		return err
	}
	fmt.Printf("Key %s (%s), scopes: %s\n", made.ID, made.Name, strings.Join(made.Scopes, ", "))
	fmt.Println("New API key, shown only once:", plain)
	return nil
}

func listKeys(ctx context.Context, store *models.Store, tenant string, to io.Writer) error {
	all, err := store.Keys(ctx, tenant, listedKeys)
	if err != nil {
		return err
	}
	w := tabwriter.NewWriter(to, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "ID\tNAME\tBEGINS\tSCOPES\tCREATED\tLAST USED\tEXPIRES\tREVOKED")
	for _, k := range all {
		fmt.Fprintf(w, "%s\t%s\t%s…\t%s\t%s\t%s\t%s\t%s\n", k.ID, k.Name, k.Hint, strings.Join(k.Scopes, ","),
			moment(&k.CreatedAt), moment(k.LastUsedAt), moment(k.ExpiresAt), moment(k.RevokedAt))
	}
	return w.Flush()
}

func moment(t *time.Time) string {
	if t == nil {
		return "-"
	}
	return t.UTC().Format(time.RFC3339)
}

// revokeKeys makes keys invalid: those with these ids or, without any, those that standard input names.
func revokeKeys(ctx context.Context, tenant string, ids []string, from io.Reader) error {
	if slices.ContainsFunc(ids, models.IsKey) {
		return errors.New("pass the key on standard input, or give its id (see sandyard key): " +
			"a key on the command line stays in the shell's history")
	}
	if len(ids) == 0 {
		lines := bufio.NewScanner(io.LimitReader(from, 1<<20))
		for lines.Scan() {
			if line := strings.TrimSpace(lines.Text()); line != "" {
				ids = append(ids, line)
			}
		}
		if err := lines.Err(); err != nil {
			return err
		}
	}
	if len(ids) == 0 {
		return errors.New("standard input holds no key; write one key or id per line")
	}
	return withStore(ctx, func(store *models.Store, _ *slog.Logger) error {
		for _, key := range ids {
			if err := store.RevokeKey(ctx, tenant, key); err != nil {
				return fmt.Errorf("revoke %s: %w; sandyard key lists the ids", shown(key), err)
			}
			fmt.Printf("Revoked %s: within ten seconds its requests are refused and its terminals and streams end\n", shown(key))
		}
		return nil
	})
}

// shown is how a key may stand on a screen: an id is no secret.
func shown(key string) string {
	if models.IsKey(key) {
		return fmt.Sprintf("%.7s…", key)
	}
	return fmt.Sprintf("%.60q", key)
}
