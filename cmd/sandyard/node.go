package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"sandyard/models"
)

func nodeCommand() *cobra.Command {
	var leave, wait bool
	drain := &cobra.Command{
		Use: "drain ID", Short: "give a worker no new sandboxes, and stop it with --leave", Args: one("ID"),
		RunE: onStore(func(ctx context.Context, store *models.Store, args []string) error {
			err := told(args[0], store.Drain(ctx, args[0], leave))
			if err == nil && wait {
				err = awaitDrained(ctx, store, args[0], os.Stdout)
			}
			return err
		}),
	}
	drain.Flags().BoolVar(&leave, "leave", false,
		"also end the worker's process; another worker of its engine takes over the sandboxes")
	drain.Flags().BoolVar(&wait, "wait", false, "wait until the worker holds no sandbox or has ended")
	return group("node", "list the workers, drain one or stop it", drain,
		&cobra.Command{
			Use: "list", Short: "list the workers with what they hold", Args: noArguments,
			RunE: onStore(func(ctx context.Context, store *models.Store, _ []string) error {
				return listNodes(ctx, store, os.Stdout)
			}),
		},
		&cobra.Command{
			Use: "undrain ID", Short: "end the drain of a worker", Args: one("ID"),
			RunE: onStore(func(ctx context.Context, store *models.Store, args []string) error {
				return told(args[0], store.Undrain(ctx, args[0]))
			}),
		})
}

func told(id string, err error) error {
	if errors.Is(err, models.ErrNotFound) {
		return fmt.Errorf("worker %s is not alive or is leaving; list the workers with sandyard node list", id)
	}
	return err
}

func listNodes(ctx context.Context, store *models.Store, to io.Writer) error {
	all, err := store.Nodes(ctx)
	if err != nil {
		return err
	}
	w := tabwriter.NewWriter(to, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "ID\tHOST\tPROVIDER\tSTATE\tSANDBOXES\tCPUS\tMEMORY MB\tPIDS\tDISK FREE\tJOBS\tSTARTED")
	for _, n := range all {
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\t%d of %d\t%s\n", n.ID, n.Host, n.Provider, n.State(), of(n.Sandboxes, n.MaxSandboxes),
			of(n.CPUs, n.MaxCPUs), of(n.MemoryMB, n.MaxMemoryMB), of(n.Pids, n.MaxPids), diskOf(n), n.Running, n.Slots, n.StartedAt.UTC().Format(time.RFC3339))
	}
	return w.Flush()
}

// of shows a use with its limit, if there is one.
func of[N int | int64 | float64](used, limit N) string {
	if limit == 0 {
		return fmt.Sprint(used)
	}
	return fmt.Sprintf("%v of %v", used, limit)
}

func diskOf(n models.NodeLoad) string {
	switch {
	case n.Disk.FreeMB == 0:
		return "unknown"
	case n.Disk.Low:
		return fmt.Sprintf("%d MB, low", n.Disk.FreeMB)
	}
	return fmt.Sprintf("%d MB", n.Disk.FreeMB)
}

// awaitDrained says how many sandboxes a node holds, whenever that changes, until there are none.
func awaitDrained(ctx context.Context, store *models.Store, id string, to io.Writer) error {
	tick := time.NewTicker(500 * time.Millisecond)
	defer tick.Stop()
	for last := -1; ; {
		left, err := sandboxesOn(ctx, store, id)
		if err != nil {
			return err
		}
		if left != last {
			fmt.Fprintf(to, "%s holds %d sandboxes\n", id, left)
		}
		if last = left; left == 0 {
			return nil
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

func sandboxesOn(ctx context.Context, store *models.Store, id string) (int, error) {
	all, err := store.Nodes(ctx)
	for _, n := range all {
		if n.ID == id {
			return n.Sandboxes, err
		}
	}
	return 0, err
}
