package main

import (
	"context"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"sandyard/auth"
	"sandyard/models"
)

func signingKeyCommand() *cobra.Command {
	var end bool
	rotate := &cobra.Command{
		Use: "rotate", Short: "sign the tokens of logins with a new key", Args: noArguments,
		Long: "Sign the tokens of logins with a new key. Without the option, tokens of the old keys are valid until they\n" +
			"expire. Processes use the new key within ten seconds. The server replaces a key that is 30 days old.",
		RunE: onStore(func(ctx context.Context, store *models.Store, _ []string) error {
			keys, err := store.RotateSigningKey(ctx, auth.NewSecret(), auth.TokenLife+time.Minute, end)
			if err != nil {
				return err
			}
			fmt.Printf("Tokens are signed with %s. Older keys that count until their tokens expire: %d\n",
				keys[0].ID, len(keys)-1)
			return nil
		}),
	}
	rotate.Flags().BoolVar(&end, "end-logins", false,
		"refuse all tokens of old keys and end all logins, such as after a leak of the database")
	return group("signing-key", "sign the tokens of logins with another key", rotate)
}
