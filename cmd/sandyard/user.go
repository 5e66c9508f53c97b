package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"sandyard/auth"
	"sandyard/models"
)

// listedUsers is how many users are listed.
const listedUsers = 1000

// userOptions are the options of the commands of sandyard user.
type userOptions struct {
	tenant, role, hash string
	stdin              bool
	limits             models.Ceilings
}

func userCommand() *cobra.Command {
	o := &userOptions{limits: models.Ceilings{}}
	list := o.command("list", "list the users: id, name, role, limits, creation time",
		func(ctx context.Context, store *models.Store, _ string) error {
			return listUsers(ctx, store, o.tenant, os.Stdout)
		})
	add := o.command("add NAME", "create a user",
		func(ctx context.Context, store *models.Store, name string) error {
			return addUser(ctx, store, *o, name)
		})
	password := o.command("password NAME", "set another password; the tokens of the old one end",
		func(ctx context.Context, store *models.Store, name string) error {
			return changeUser(ctx, store, o.tenant, name, models.UserChange{PasswordHash: o.hash})
		})
	role := o.command("role NAME", "give a user another role",
		func(ctx context.Context, store *models.Store, name string) error {
			return changeUser(ctx, store, o.tenant, name, models.UserChange{Role: o.role})
		})
	set := o.command("set NAME",
		"change the limits of a user, which hold below those of the tenant for logins and keys of the user",
		func(ctx context.Context, store *models.Store, name string) error {
			return changeUser(ctx, store, o.tenant, name, models.UserChange{Limits: o.limits})
		})
	remove := o.command("remove NAME", "remove a user, whose tokens and keys end",
		func(ctx context.Context, store *models.Store, name string) error {
			return removeUser(ctx, store, o.tenant, name)
		})
	const roles = "member (the tenant's work), admin (also its keys, users and secrets) or " +
		"operator (also tenants and workers)"
	add.Flags().String("role", models.RoleMember, roles)
	role.Flags().String("role", "", roles) // nobody is to lose a role by a word that was left out
	addCeilings(set.Flags(), o.limits)
	for _, c := range []*cobra.Command{add, password} {
		c.Flags().BoolVar(&o.stdin, "password-stdin", false, "read the password from standard input")
		c.Long += "\nThe password is the first line of standard input, 8 to 1024 bytes: on the command line it would show\n" +
			"in the shell's history and in the process list."
	}
	return group("user", "list, create, change, limit or remove users, who log in with a password",
		list, add, password, role, set, remove)
}

// command is one of them. do gets the name that use asks for.
func (o *userOptions) command(
	use, about string, do func(ctx context.Context, store *models.Store, name string) error,
) *cobra.Command {
	c := &cobra.Command{
		Use: use, Short: about, PreRunE: o.check, Args: noArguments,
		RunE: onStore(func(ctx context.Context, store *models.Store, args []string) error {
			return do(ctx, store, strings.Join(args, ""))
		}),
	}
	c.Flags().StringVar(&o.tenant, "tenant", tenant, "the tenant that the user works for")
	if strings.HasSuffix(use, "NAME") {
		c.Args = one("NAME")
		c.Long = strings.ToUpper(about[:1]) + about[1:] +
			".\nNAME has 1 to 100 printable characters without spaces; no two users of the installation have one name."
	}
	return c
}

// check refuses options that are missing or wrong, and reads the password.
func (o *userOptions) check(c *cobra.Command, args []string) (err error) {
	has := func(name string) bool { return c.Flags().Lookup(name) != nil }
	if has("role") {
		o.role = c.Flags().Lookup("role").Value.String()
	}
	switch {
	case has("max-queued") && len(o.limits) == 0:
		return errNothingToSet
	case has("password-stdin") && !o.stdin:
		return fmt.Errorf("pass the password on standard input: %s %s --password-stdin", c.CommandPath(), args[0])
	case has("role") && o.role == "":
		return errors.New("say which role: --role member, admin or operator")
	case has("role") && !known(o.role):
		return fmt.Errorf("the role %q is unknown; use member, admin or operator", o.role)
	case o.stdin:
		o.hash, err = readPassword(os.Stdin)
	}
	return err
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
func addUser(ctx context.Context, store *models.Store, o userOptions, name string) error {
	if err := store.BootstrapWith(ctx, nil); err != nil {
		return err
	}
	u, err := store.CreateUser(ctx, o.tenant, name, o.hash, o.role)
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
