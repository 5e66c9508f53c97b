// Command sandyard is the operator's tool: it runs the whole system on one machine, migrates the database, makes keys and
// drains workers.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"syscall"

	"sandyard/models"
	"sandyard/service"
)

// command is one subcommand.
type command struct {
	name, args, about string
	run               func(ctx context.Context, args []string) error
}

func commands() []command {
	return []command{
		{"dev", "[--once] [--dir DIR] [--addr ADDR]", "run everything on this machine and try it", runDev},
		{"migrate", "", "bring the database of DATABASE_URL up to date", runMigrate},
		{"key", "[--e2b] NAME [SCOPE...] | --revoke KEY", "make another API key (scopes: sandboxes, operator; default sandboxes), or end one, named by itself or its id", runKey},
		{"node", "list | drain [--leave] [--wait] ID | undrain ID", "see the workers, give one no new sandboxes, end it", runNode},
		{"version", "", "print the version", runVersion},
	}
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
	defer stop()
	os.Exit(dispatch(ctx, os.Args[1:]))
}

func dispatch(ctx context.Context, args []string) int {
	if len(args) == 0 || args[0] == "help" || args[0] == "--help" || args[0] == "-h" {
		help(os.Stdout)
		return 0
	}
	for _, c := range commands() {
		if c.name != args[0] {
			continue
		}
		switch err := c.run(ctx, args[1:]); {
		case errors.Is(err, flag.ErrHelp): // the flags have been listed
			return 0
		case err != nil:
			fmt.Fprintf(os.Stderr, "sandyard %s: %v\n", c.name, err)
			return 1
		}
		return 0
	}
	fmt.Fprintf(os.Stderr, "sandyard: unknown command %q\n\n", args[0])
	help(os.Stderr)
	return 2
}

func help(w io.Writer) {
	fmt.Fprint(w, "Sandyard runs untrusted code for AI agents: every sandbox operation is a durable job.\n\nUsage:\n")
	for _, c := range commands() {
		fmt.Fprintf(w, "  sandyard %-8s %-48s %s\n", c.name, c.args, c.about)
	}
	fmt.Fprint(w, "\nsandyard dev also reads the variables of worker --help; the others read:\n")
	service.PrintVariables(w, service.Common{})
}

func runVersion(_ context.Context, args []string) error {
	if err := nothing("version", args); err != nil {
		return err
	}
	fmt.Println("sandyard", service.Version)
	return nil
}

// nothing refuses what is given to a command that takes neither options nor names.
func nothing(name string, args []string) error {
	f := flag.NewFlagSet("sandyard "+name, flag.ContinueOnError)
	if err := f.Parse(args); err != nil {
		return err
	}
	if f.NArg() > 0 {
		return fmt.Errorf("%q is too much: it takes no arguments", f.Arg(0))
	}
	return nil
}

func runMigrate(ctx context.Context, args []string) error {
	if err := nothing("migrate", args); err != nil {
		return err
	}
	return withStore(ctx, func(store *models.Store, log *slog.Logger) error { return store.Migrate(ctx, log) })
}

func runKey(ctx context.Context, args []string) error {
	f := flag.NewFlagSet("sandyard key", flag.ContinueOnError)
	e2b := f.Bool("e2b", false, "in the form that E2B's clients expect")
	revoke := f.Bool("revoke", false, "make a key invalid, with the terminals and streams that it has opened")
	if err := f.Parse(args); err != nil {
		return err
	}
	if args = f.Args(); *revoke {
		return revokeKeys(ctx, args)
	}
	if len(args) == 0 {
		return fmt.Errorf("give the key a name, such as: sandyard key ci")
	}
	scopes, err := parseScopes(args[1:])
	if err != nil {
		return err
	}
	return withStore(ctx, func(store *models.Store, _ *slog.Logger) error {
		create := store.CreateKey
		if *e2b {
			create = store.CreateE2BKey
		}
		key, err := create(ctx, "default", args[0], scopes)
		if err == nil {
			fmt.Println("New API key, shown only now:", key)
		}
		return err
	})
}

// revokeKeys makes keys invalid, each named by its plain text or its id.
func revokeKeys(ctx context.Context, keys []string) error {
	if len(keys) == 0 {
		return fmt.Errorf("name the key by itself or its id, such as: sandyard key --revoke key_0123")
	}
	return withStore(ctx, func(store *models.Store, _ *slog.Logger) error {
		for _, key := range keys {
			if err := store.RevokeKey(ctx, "default", key); err != nil {
				return fmt.Errorf("revoke %s: %w", shown(key), err)
			}
			fmt.Printf("Revoked %s: within ten seconds requests with it are refused, and its terminals and streams have ended\n", shown(key))
		}
		return nil
	})
}

// shown is how a key may stand on a screen: an id is no secret.
func shown(key string) string {
	if models.IsKey(key) {
		return fmt.Sprintf("%.12s…", key)
	}
	return key
}

func withStore(ctx context.Context, f func(*models.Store, *slog.Logger) error) error {
	c, err := service.Load[storeOnly]()
	if err != nil {
		return err
	}
	log := service.NewLogger(os.Stderr, c.LogLevel)
	store, err := service.OpenStore(ctx, c.Common, log)
	if err != nil {
		return err
	}
	return errors.Join(f(store, log), store.Close())
}
