package main

import (
	"bufio"
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

	"sandyard/models"
)

const (
	tenant = "default"
	// listedKeys is how many keys are listed, the newest.
	listedKeys = 1000
)

func keyUsage(f *flag.FlagSet) func() {
	return func() {
		fmt.Fprint(f.Output(), `Usage:
  sandyard key                            list the keys: id, name, first characters, scopes, and when created, used, expired, revoked
  sandyard key [--e2b] NAME [SCOPE...]    create a key and print it once
  sandyard key --revoke [ID...]           revoke keys and end their open terminals and streams

Put --tenant NAME first for the keys of another tenant than default.

NAME    1 to 100 printable characters; no two valid keys have the same name
SCOPE   sandboxes (all of /v1 but the following; the default), admin (keys of the tenant) or operator (that, workers, shared
        templates, /metrics and /monitor)
ID      from the list. Without an ID, keys or ids are read from standard input, one per line: a key on the
        command line would show in the shell's history and in the process list

Options:
`)
		f.PrintDefaults()
	}
}

func runKey(ctx context.Context, args []string) error {
	f := flag.NewFlagSet("sandyard key", flag.ContinueOnError)
	f.Usage = keyUsage(f)
	e2b := f.Bool("e2b", false, "create the key in the format that E2B clients expect")
	life := f.Duration("expires", 0, "time after which the key is refused, such as 720h; 0 = never")
	of := f.String("tenant", tenant, "the tenant whose keys these are")
	revoke := f.Bool("revoke", false, "revoke keys")
	if err := f.Parse(args); err != nil {
		return err
	}
	switch args = f.Args(); {
	case *revoke:
		return revokeKeys(ctx, *of, args, os.Stdin)
	case len(args) == 0 && *e2b:
		return errors.New("give the key a name, such as: sandyard key --e2b ci")
	case len(args) == 0:
		return withStore(ctx, func(store *models.Store, _ *slog.Logger) error { return listKeys(ctx, store, *of, os.Stdout) })
	}
	scopes, err := parseScopes(args[1:])
	if err != nil {
		return err
	}
	return withStore(ctx, func(store *models.Store, _ *slog.Logger) error {
		return makeKey(ctx, store, *of, models.NewKey{Name: args[0], Scopes: scopes, Life: *life, E2B: *e2b})
	})
}

// makeKey makes the tenant, too, where no API process has run on the database yet.
func makeKey(ctx context.Context, store *models.Store, tenant string, k models.NewKey) error {
	if err := store.BootstrapWith(ctx, nil); err != nil {
		return err
	}
	if _, err := store.Tenant(ctx, tenant); errors.Is(err, models.ErrNotFound) {
		return fmt.Errorf("there is no tenant %q; see sandyard tenant list", tenant)
	} else if err != nil {
		return err
	}
	plain, err := store.MakeKey(ctx, tenant, k)
	if err != nil {
		return err
	}
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
	for _, id := range ids {
		if models.IsKey(id) {
			return errors.New("pass the key on standard input, or give its id (see sandyard key): " +
				"a key on the command line stays in the shell's history")
		}
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
