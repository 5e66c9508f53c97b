// Command sandyard is the operator's tool: it runs the whole system on one machine, migrates the database, makes keys and users,
// drains workers and brings agents' tools to clients.
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
	"path/filepath"
	"strings"
	"syscall"

	"sandyard/app"
	"sandyard/models"
	"sandyard/models/pg"
)

// command is one subcommand.
type command struct {
	name, args, about string
	run               func(ctx context.Context, args []string) error
}

func commands() []command {
	return []command{
		{"dev", "[--once] [--dir DIR] [--addr ADDR]", "run the whole system on this machine and try it", runDev},
		{"migrate", "", "bring the database of DATABASE_URL up to date", runMigrate},
		{"key", "[--tenant T] [--user U] [--e2b] [--expires D] [NAME [SCOPE...]] | --rotate [--overlap D] ID | --revoke [ID...]", "list, create, rotate or revoke API keys", runKey},
		{"tenant", "list | add [--max-sandboxes N] [--max-queued N] [--max-cpus N] [--max-memory-mib N] [--job-rate N] [--job-burst N] NAME | set [--max-sandboxes N] [--max-queued N] [--max-cpus N] [--max-memory-mib N] [--job-rate N] [--job-burst N] [--providers LIST] NAME", "list the tenants, add one with its first key, or change limits and providers", runTenant},
		{"user", "list [--tenant T] | add [--tenant T] [--role ROLE] --password-stdin NAME | password [--tenant T] --password-stdin NAME | role [--tenant T] --role ROLE NAME | set [--tenant T] [--max-sandboxes N] [--max-queued N] [--max-cpus N] [--max-memory-mib N] [--job-rate N] [--job-burst N] NAME | remove [--tenant T] NAME", "list, create, change, limit or remove users, who log in with a password", runUser},
		{"signing-key", "rotate [--end-logins]", "sign the tokens of logins with another key", runSigningKey},
		{"node", "list | drain [--leave] [--wait] ID | undrain ID", "list the workers, drain one or stop it", runNode},
		{"mcp", "[--url URL] [--session NAME] [--template NAME] [--tools SETS] | init [--url URL] [--force] CLIENT", "serve agents' tools on standard input and output, or configure a client for them", runMCP},
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
	if args[0] == "--version" {
		args = append([]string{"version"}, args[1:]...)
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
		fmt.Fprintf(w, "  sandyard %-11s  %s\n", c.name, c.about)
		for form := range strings.SplitSeq(c.args, " | ") {
			if form != "" {
				fmt.Fprintln(w, "      "+form)
			}
		}
	}
	fmt.Fprint(w, "\nRun sandyard COMMAND --help for details. sandyard dev reads the variables of api --help and worker --help, except the\n"+
		"addresses of the servers that it starts itself. Without DATABASE_URL, all commands but dev and mcp use the\n"+
		"database of the sandyard dev that runs in this directory. sandyard mcp reads SANDYARD_URL and SANDYARD_API_KEY. All other\n"+
		"commands read:\n")
	app.PrintVariables(w, app.Common{})
}

func runVersion(_ context.Context, args []string) error {
	if err := nothing("version", args); err != nil {
		return err
	}
	fmt.Println("sandyard", app.Version)
	return nil
}

// nothing refuses what is given to a command that takes neither options nor names.
func nothing(name string, args []string) error {
	f := flag.NewFlagSet("sandyard "+name, flag.ContinueOnError)
	if err := f.Parse(args); err != nil {
		return err
	}
	if f.NArg() > 0 {
		return fmt.Errorf("unexpected argument %q: the command takes no arguments", f.Arg(0))
	}
	return nil
}

func runMigrate(ctx context.Context, args []string) error {
	if err := nothing("migrate", args); err != nil {
		return err
	}
	return withStore(ctx, func(store *models.Store, log *slog.Logger) error { return store.Migrate(ctx, log) })
}

// withStore opens the database of DATABASE_URL or, where that is not set, of the sandyard dev that runs in this directory.
func withStore(ctx context.Context, f func(*models.Store, *slog.Logger) error) error {
	if err := findDevDatabase(); err != nil {
		return err
	}
	c, err := app.Load[storeOnly]()
	if err != nil {
		return err
	}
	log := app.NewLogger(os.Stderr, c.LogLevel)
	store, err := app.OpenStore(ctx, c.Common, log)
	if err != nil {
		return err
	}
	err = errors.Join(f(store, log), store.Close())
	if pg.IsUnmigrated(err) {
		return errors.New("the database lacks the tables of this version; run sandyard migrate first")
	}
	return err
}

// findDevDatabase sets DATABASE_URL to a development database, and says so.
func findDevDatabase() error {
	const name = "DATABASE_URL"
	if os.Getenv(name) != "" {
		return nil
	}
	path := filepath.Join(devDir, databaseFile)
	dsn, err := os.ReadFile(path)
	if errors.Is(err, os.ErrNotExist) {
		return nil // the configuration says what is missing
	}
	if err != nil {
		return err
	}
	fmt.Fprintf(os.Stderr, "DATABASE_URL is not set: using the development database in %s\n", devDir)
	return os.Setenv(name, strings.TrimSpace(string(dsn)))
}
