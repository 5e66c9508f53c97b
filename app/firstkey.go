package app

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"

	"sandyard/models"
)

// firstKey makes the first key of a new database. Only FIRST_KEY_FILE and a terminal get to see it: what a service
// prints is kept in logs.
func firstKey(ctx context.Context, c API, store *models.Store, screen *os.File, log *slog.Logger) error {
	terminal := isTerminal(screen)
	if c.FirstKey == "" && !terminal {
		if err := store.BootstrapWith(ctx, nil); err != nil {
			return err
		}
		return tellWithoutKey(ctx, store, log)
	}
	return store.BootstrapWith(ctx, func(key string) error {
		if terminal {
			fmt.Fprintln(screen, "First API key, shown only once:", key)
		}
		if c.FirstKey == "" {
			return nil
		}
		if err := writeKey(c.FirstKey, key); err != nil {
			return fmt.Errorf("FIRST_KEY_FILE: %w", err)
		}
		log.InfoContext(ctx, "first API key written", "file", c.FirstKey)
		return nil
	})
}

func tellWithoutKey(ctx context.Context, store *models.Store, log *slog.Logger) error {
	keys, err := store.Keys(ctx, "default", 1)
	if err == nil && len(keys) == 0 {
		log.WarnContext(ctx, "no API key exists; create one with: sandyard key NAME sandboxes operator")
	}
	return err
}

func isTerminal(f *os.File) bool {
	info, err := f.Stat()
	return err == nil && info.Mode()&os.ModeCharDevice != 0 && !isNull(info)
}

// isNull says whether this is the null device, which is a character device, too.
func isNull(info os.FileInfo) bool {
	null, err := os.Stat(os.DevNull)
	return err == nil && os.SameFile(info, null)
}

// writeKey makes a file that its owner alone may read. One that is there is replaced, for its mode may be another.
func writeKey(path, key string) error {
	if err := os.Remove(path); err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	f, err := os.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	_, err = f.WriteString(key + "\n")
	return errors.Join(err, f.Sync(), f.Close())
}
