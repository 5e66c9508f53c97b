package main

import (
	"bufio"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"os"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"sandyard/auth"
	"sandyard/models"
)

// listedUsers is how many users are listed.
const listedUsers = 1000

// userCommands are what sandyard user can do.
func userCommands() map[string]userCommand {
	return map[string]userCommand{
		"list":     {about: "list the users: id, name, role, limits, creation time"},
		"add":      {takesPassword: true, takesRole: true, about: "create a user"},
		"password": {takesPassword: true, about: "set another password; the tokens of the old one end"},
		"role":     {takesRole: true, about: "give a user another role"},
		"set":      {takesLimits: true, about: "change the limits of a user, which hold below those of the tenant for logins and keys of the user"},
		"remove":   {about: "remove a user, whose tokens and keys end"},
	}
}

type userCommand struct {
	about                                 string
	takesPassword, takesRole, takesLimits bool
}

// userOptions are the options of one of them.
type userOptions struct {
	tenant, role string
	stdin        bool
	limits       models.Ceilings
}

func userUsage(f *flag.FlagSet, name string) func() {
	return func() {
		c := userCommands()[name]
		fmt.Fprintf(f.Output(), "Usage: sandyard user %s", name)
		fmt.Fprint(f.Output(), " [OPTION...]")
		if name != "list" {
			fmt.Fprint(f.Output(), " NAME")
		}
		fmt.Fprintf(f.Output(), "\n\nUse it to %s.\n", c.about)
		if name != "list" {
			fmt.Fprint(f.Output(), "NAME has 1 to 100 printable characters without spaces; no two users of the installation have one name.\n")
		}
		if c.takesPassword {
			fmt.Fprint(f.Output(), "The password is the first line of standard input, 8 to 1024 bytes: on the command line it would show in the\n"+
				"shell's history and in the process list.\n")
		}
		fmt.Fprint(f.Output(), "\nOptions:\n")
		f.PrintDefaults()
	}
}

func runUser(ctx context.Context, args []string) error {
	const usage = "use list, add, password, role, set or remove, such as: sandyard user add NAME --password-stdin"
	if len(args) == 0 {
		return errors.New(usage)
	}
	name := args[0]
	c, ok := userCommands()[name]
	if name == "help" || name == "--help" || name == "-h" {
		for _, n := range slices.Sorted(maps.Keys(userCommands())) {
			fmt.Printf("  sandyard user %-9s %s\n", n, userCommands()[n].about)
		}
		return flag.ErrHelp
	}
	if !ok {
		return fmt.Errorf("unknown command %q: %s", name, usage)
	}
	var o userOptions
	f := flag.NewFlagSet("sandyard user "+name, flag.ContinueOnError)
	f.Usage = userUsage(f, name)
	f.StringVar(&o.tenant, "tenant", tenant, "the tenant that the user works for")
	if c.takesRole {
		def := models.RoleMember
		if name == "role" {
			def = "" // nobody is to lose a role by a word that was left out
		}
		f.StringVar(&o.role, "role", def, "member (the tenant's work), admin (also its keys, users and secrets) or operator (also tenants and workers)")
	}
	if c.takesLimits {
		o.limits = addCeilings(f)
	}
	if c.takesPassword {
		f.BoolVar(&o.stdin, "password-stdin", false, "read the password from standard input")
	}
	names, err := mixed(f, args[1:])
	switch {
	case err != nil:
		return err
	case name == "list" && len(names) > 0, name != "list" && len(names) != 1:
		return fmt.Errorf("%s takes %s; see sandyard user %s --help", name, map[bool]string{true: "no name", false: "one NAME"}[name == "list"], name)
	case c.takesLimits && len(o.limits) == 0:
		return errors.New("nothing to set: give a limit, such as --max-sandboxes")
	case c.takesPassword && !o.stdin:
		return fmt.Errorf("pass the password on standard input: sandyard user %s %s --password-stdin", name, names[0])
	}
	if c.takesRole && o.role == "" {
		return errors.New("say which role: --role member, admin or operator")
	}
	if c.takesRole && !known(o.role) {
		return fmt.Errorf("the role %q is unknown; use member, admin or operator", o.role)
	}
	return doUser(ctx, name, append(names, "")[0], o)
}

func doUser(ctx context.Context, command, name string, o userOptions) error {
	var hash string
	if o.stdin {
		var err error
		if hash, err = readPassword(os.Stdin); err != nil {
			return err
		}
	}
	return withStore(ctx, func(store *models.Store, _ *slog.Logger) error {
		switch command {
		case "add":
			return addUser(ctx, store, o, name, hash)
		case "password":
			return changeUser(ctx, store, o.tenant, name, models.UserChange{PasswordHash: hash})
		case "role":
			return changeUser(ctx, store, o.tenant, name, models.UserChange{Role: o.role})
		case "set":
			return changeUser(ctx, store, o.tenant, name, models.UserChange{Limits: o.limits})
		case "remove":
			return removeUser(ctx, store, o.tenant, name)
		}
		return listUsers(ctx, store, o.tenant, os.Stdout)
	})
}

// mixed parses options that stand before, between and behind names.
func mixed(f *flag.FlagSet, args []string) (names []string, err error) {
	for {
		if err := f.Parse(args); err != nil {
			return nil, err
		}
		if f.NArg() == 0 {
			return names, nil
		}
		names, args = append(names, f.Arg(0)), f.Args()[1:]
	}
}

// readPassword returns the hash of the first line.
func readPassword(from io.Reader) (string, error) {
	line, err := bufio.NewReader(io.LimitReader(from, 2*auth.MaxPassword)).ReadString('\n')
	if err != nil && !errors.Is(err, io.EOF) {
		return "", err
	}
	return auth.HashPassword(strings.TrimRight(line, "\r\n"))
}

// addUser makes the first tenant, too, where no API process has run on the database yet.
func addUser(ctx context.Context, store *models.Store, o userOptions, name, hash string) error {
	if err := store.BootstrapWith(ctx, nil); err != nil {
		return err
	}
	u, err := store.CreateUser(ctx, o.tenant, name, hash, o.role)
	if err != nil {
		return err
	}
	fmt.Printf("User %s (%s), role: %s, tenant: %s\n", u.ID, u.Name, u.Role, u.TenantID)
	return nil
}

func known(role string) bool {
	return role == models.RoleMember || role == models.RoleAdmin || role == models.RoleOperator
}

// userNamed returns a tenant's user of a name.
func userNamed(ctx context.Context, store *models.Store, tenant, name string) (models.User, error) {
	u, err := store.UserNamed(ctx, name)
	if errors.Is(err, models.ErrNotFound) || err == nil && u.TenantID != tenant {
		return u, fmt.Errorf("the tenant has no user %q; see sandyard user list", name)
	}
	return u, err
}

func changeUser(ctx context.Context, store *models.Store, tenant, name string, to models.UserChange) error {
	u, err := userNamed(ctx, store, tenant, name)
	if err != nil {
		return err
	}
	_, err = store.ChangeUser(ctx, tenant, u.ID, to)
	return err
}

func removeUser(ctx context.Context, store *models.Store, tenant, name string) error {
	u, err := userNamed(ctx, store, tenant, name)
	if err != nil {
		return err
	}
	_, err = store.RemoveUser(ctx, tenant, u.ID)
	return err
}

func listUsers(ctx context.Context, store *models.Store, tenant string, to io.Writer) error {
	all, err := store.Users(ctx, tenant, listedUsers)
	if err != nil {
		return err
	}
	w := tabwriter.NewWriter(to, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "ID\tNAME\tROLE\tMAX SANDBOXES\tMAX QUEUED\tMAX CPUS\tMAX MEMORY MIB\tJOB RATE\tJOB BURST\tCREATED")
	for _, u := range all {
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\n", u.ID, u.Name, u.Role, ceiling(u.Quota.MaxSandboxes), ceiling(u.MaxQueued),
			ceiling(u.Quota.MaxCPUs), ceiling(u.Quota.MaxMemoryMiB), ceiling(u.Rate.JobRate), burst(u.Rate), u.CreatedAt.UTC().Format(time.RFC3339))
	}
	return w.Flush()
}
