package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"os"
	"strings"
	"text/tabwriter"
	"time"

	"sandyard/models"
)

const nodeUsage = "usage: sandyard node list, sandyard node drain [--leave] [--wait] ID or sandyard node undrain ID"

func runNode(ctx context.Context, args []string) error {
	if len(args) == 0 {
		return errors.New(nodeUsage)
	}
	if strings.HasPrefix(args[0], "-") { // what to do comes first
		f := flag.NewFlagSet("sandyard node", flag.ContinueOnError)
		f.Usage = func() { fmt.Fprintln(f.Output(), nodeUsage) }
		return f.Parse(args)
	}
	f := flag.NewFlagSet("sandyard node "+args[0], flag.ContinueOnError)
	leave := f.Bool("leave", false, "also end the worker's process; another worker of its engine takes over the sandboxes")
	wait := f.Bool("wait", false, "wait until the worker holds no sandbox or has ended")
	if err := f.Parse(args[1:]); err != nil {
		return err
	}
	return withStore(ctx, func(store *models.Store, _ *slog.Logger) error {
		switch id := f.Arg(0); {
		case f.NArg() > 1: // options come first
		case args[0] == "list" && id == "":
			return listNodes(ctx, store, os.Stdout)
		case args[0] == "drain" && id != "":
			err := told(id, store.Drain(ctx, id, *leave))
			if err == nil && *wait {
				err = awaitDrained(ctx, store, id, os.Stdout)
			}
			return err
		case args[0] == "undrain" && id != "":
			return told(id, store.Undrain(ctx, id))
		}
		return errors.New(nodeUsage)
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
