package main

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"os"
	"strings"

	"github.com/spf13/cobra"
)

const (
	// defaultURL is where an API on this machine listens.
	defaultURL = "http://127.0.0.1:8080"
	urlHelp    = "URL of the API; default SANDYARD_URL, else " + defaultURL
)

func mcpCommand() *cobra.Command {
	var at string
	query := url.Values{}
	c := &cobra.Command{
		Use: "mcp", Short: "serve agents' tools on standard input and output, or configure a client for them",
		Long: "Serve agents' tools on standard input and output, for clients that start their servers.\n" +
			"The tools are those of the API at --url, whose key is in " + keyVariable + ".",
		Args: func(c *cobra.Command, args []string) error {
			if len(args) > 0 {
				return fmt.Errorf("unexpected argument %q: only init may follow", args[0])
			}
			return nil
		},
		RunE: func(c *cobra.Command, _ []string) error { return runMCP(c.Context(), at, query) },
	}
	c.Flags().StringVar(&at, "url", "", urlHelp)
	for name, about := range map[string]string{
		"session":  "name of the conversation, whose sandbox is found again; default: a new one each time",
		"template": "template of the conversation's sandbox",
		"tools":    "sets of tools or tools, with commas between them; default core",
	} {
		c.Flags().Func(name, about, func(value string) error { query.Set(name, value); return nil })
	}
	c.AddCommand(mcpInitCommand())
	return c
}

func runMCP(ctx context.Context, at string, query url.Values) error {
	base, err := apiURL(at)
	if err != nil {
		return err
	}
	key := os.Getenv(keyVariable)
	if key == "" {
		return errors.New(keyVariable + " is missing: set it to an API key, which sandyard key NAME makes")
	}
	return newBridge(base+"/mcp?"+query.Encode(), key, os.Stdout).carry(ctx, os.Stdin)
}

// apiURL is the URL of the API without a slash at its end.
func apiURL(given string) (string, error) {
	if given == "" {
		given = os.Getenv("SANDYARD_URL")
	}
	if given == "" {
		given = defaultURL
	}
	u, err := url.Parse(given)
	if err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" || u.RawQuery != "" {
		return "", fmt.Errorf("%q is not the URL of an API; give one such as %s", given, defaultURL)
	}
	return strings.TrimSuffix(u.String(), "/"), nil
}
