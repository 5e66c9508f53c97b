package main

import (
	"cmp"
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"sandyard/app"
)

// group is a command that needs the name of another one behind it. The root prints its help without one.
func group(name, short string, commands ...*cobra.Command) *cobra.Command {
	g := &cobra.Command{Use: name + " COMMAND", Short: short, DisableFlagsInUseLine: true, Args: cobra.ArbitraryArgs}
	g.AddCommand(commands...)
	g.RunE = func(c *cobra.Command, args []string) error {
		switch {
		case len(args) > 0 && args[0] != "help":
			return unknownCommand(c, args[0])
		case len(args) == 0 && c.HasParent():
			return fmt.Errorf("the name of a command is missing; see %s --help", c.CommandPath())
		}
		return c.Help()
	}
	return g
}

// noArguments refuses what is given to a command that takes options alone.
func noArguments(_ *cobra.Command, args []string) error {
	if len(args) > 0 {
		return fmt.Errorf("unexpected argument %q: the command takes no arguments", args[0])
	}
	return nil
}

// one demands one argument.
func one(what string) cobra.PositionalArgs {
	return func(c *cobra.Command, args []string) error {
		if len(args) != 1 {
			return fmt.Errorf("%s takes one %s; see %s --help", c.Name(), what, c.CommandPath())
		}
		return nil
	}
}

func unknownCommand(c *cobra.Command, typed string) error {
	return fmt.Errorf("unknown command %q%s", typed, nearest(c, typed, c))
}

// flagError names the option that was meant. An option with one dash is a group of letters for the parser. The options
// of a command that does not exist are unknown, too.
func flagError(c *cobra.Command, err error) error {
	if c.HasSubCommands() && c.Flags().NArg() > 0 {
		return unknownCommand(c, c.Flags().Arg(0))
	}
	var unknown *pflag.NotExistError
	if !errors.As(err, &unknown) {
		return err
	}
	names := &cobra.Command{}
	c.Flags().VisitAll(func(f *pflag.Flag) {
		names.AddCommand(&cobra.Command{Use: "--" + f.Name, Run: func(*cobra.Command, []string) {}})
	})
	typed := cmp.Or(unknown.GetSpecifiedShortnames(), unknown.GetSpecifiedName())
	return fmt.Errorf("%w%s", err, nearest(names, "--"+typed, c))
}

// nearest says which of the commands below names was meant, or where the help of c is.
func nearest(names *cobra.Command, typed string, c *cobra.Command) string {
	names.SuggestionsMinimumDistance = 2
	if meant := names.SuggestionsFor(typed); len(meant) > 0 {
		return "; did you mean " + strings.Join(meant, " or ") + "?"
	}
	return "; see " + c.CommandPath() + " --help"
}

// usage is the part of a command's help that follows its description.
func usage(c *cobra.Command) error {
	w, line := c.OutOrStdout(), c.CommandPath()+" COMMAND"
	if c.Runnable() {
		line = c.UseLine()
	}
	fmt.Fprintf(w, "Usage:\n  %s\n", line)
	if c.HasAvailableSubCommands() {
		fmt.Fprintln(w, "\nCommands:")
	}
	for _, sub := range c.Commands() {
		if sub.IsAvailableCommand() {
			fmt.Fprintf(w, "  %-*s %s\n", sub.NamePadding(), sub.Name(), sub.Short)
		}
	}
	fmt.Fprintf(w, "\nOptions:\n%s", c.LocalFlags().FlagUsages())
	if c.HasParent() {
		return nil
	}
	fmt.Fprint(w, `
Run sandyard COMMAND --help for details. sandyard dev reads the variables of api --help and worker --help, except the
addresses of the servers that it starts itself. Without DATABASE_URL, all commands but dev and mcp use the
database of the sandyard dev that runs in this directory. sandyard mcp reads SANDYARD_URL and SANDYARD_API_KEY. All
other commands read:
`)
	app.PrintVariables(w, app.Common{})
	return nil
}
