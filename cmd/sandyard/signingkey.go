package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"time"

	"sandyard/auth"
	"sandyard/models"
)

func runSigningKey(ctx context.Context, args []string) error {
	const usage = "use rotate, such as: sandyard signing-key rotate"
	if len(args) == 0 || args[0] != "rotate" && args[0] != "help" && args[0] != "--help" && args[0] != "-h" {
		return errors.New(usage)
	}
	f := flag.NewFlagSet("sandyard signing-key rotate", flag.ContinueOnError)
	f.Usage = func() {
		fmt.Fprint(f.Output(), "Usage: sandyard signing-key rotate [OPTION]\n\n"+
			"Use it to sign the tokens of logins with a new key. Without the option, tokens of the old keys are valid until they\n"+
			"expire. Processes use the new key within ten seconds. The server replaces a key that is 30 days old.\n\nOptions:\n")
		f.PrintDefaults()
	}
	end := f.Bool("end-logins", false, "refuse all tokens of old keys and end all logins, such as after a leak of the database")
	if args[0] != "rotate" {
		f.Usage()
		return flag.ErrHelp
	}
	if err := f.Parse(args[1:]); err != nil {
		return err
	}
	if f.NArg() > 0 {
		return errors.New("signing-key rotate takes no name")
	}
	return withStore(ctx, func(store *models.Store, _ *slog.Logger) error {
		keys, err := store.RotateSigningKey(ctx, auth.NewSecret(), auth.TokenLife+time.Minute, *end)
		if err != nil {
			return err
		}
		fmt.Printf("Tokens are signed with %s. Older keys that count until their tokens expire: %d\n", keys[0].ID, len(keys)-1)
		return nil
	})
}
