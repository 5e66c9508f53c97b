// Command sandyard is the operator's tool: it runs the whole system on one machine, migrates the database, makes keys
// and users, drains workers and brings agents' tools to clients.
package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/spf13/cobra"

	"sandyard/app"
	"sandyard/models"
	"sandyard/models/pg"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
	defer stop()
	os.Exit(dispatch(ctx, os.Args[1:]))
}

func dispatch(ctx context.Context, args []string) int {
	c := root() //nolint:contextcheck // the context comes with the execution
	c.SetArgs(args)
	c, err := c.ExecuteContextC(ctx)
	if err == nil {
		return 0
	}
	fmt.Fprintf(os.Stderr, "%s: %v\n", c.CommandPath(), err)
	if c.HasParent() {
		return 1
	}
	return 2 // there is no such command
}

func root() *cobra.Command {
	c := group("sandyard", "Sandyard runs untrusted code for AI agents: every sandbox operation is a durable job.",
		devCommand(), keyCommand(), tenantCommand(), userCommand(), signingKeyCommand(), nodeCommand(), mcpCommand(),
		&cobra.Command{
			Use: "migrate", Short: "bring the database of DATABASE_URL up to date", Args: noArguments,
			RunE: func(c *cobra.Command, _ []string) error {
				return withStore(c.Context(), func(s *models.Store, log *slog.Logger) error { return s.Migrate(c.Context(), log) })
			},
		},
		&cobra.Command{
			Use: "version", Short: "print the version", Args: noArguments,
			Run: func(*cobra.Command, []string) { fmt.Println("sandyard", app.Version) },
		})
	c.Version, c.SilenceErrors, c.SilenceUsage = app.Version, true, true
	c.SetVersionTemplate("sandyard " + app.Version + "\n")
	c.SetUsageFunc(usage)
	c.SetFlagErrorFunc(flagError)
	c.CompletionOptions.DisableNoDescFlag = true
	c.CompletionOptions.SetDefaultShellCompDirective(cobra.ShellCompDirectiveNoFileComp)
	c.InitDefaultHelpCmd()
	if help, _, err := c.Find([]string{"help"}); err == nil {
		help.Args = func(_ *cobra.Command, args []string) error {
			if found, rest, _ := c.Find(args); len(rest) > 0 { // it returns no error, because each group has a check of its own
				return unknownCommand(found, rest[0])
			}
			return nil
		}
	}
	return c
}

// onStore is the work of a command on the database.
func onStore(
	f func(ctx context.Context, store *models.Store, args []string) error,
) func(*cobra.Command, []string) error {
	return func(c *cobra.Command, args []string) error {
		return withStore(c.Context(), func(s *models.Store, _ *slog.Logger) error { return f(c.Context(), s, args) })
	}
}

// withStore opens the database of DATABASE_URL or, where that is not set, of the sandyard dev that runs in this
// directory.
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
