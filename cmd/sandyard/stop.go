package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"sandyard/jobs"
	"sandyard/models"
)

// clearTime bounds the removal of sandboxes at the end. What is left then is found by the next start.
const clearTime = 30 * time.Second

// shutdown takes down what was started, in order; it may be called after a start that failed half way.
func (d *devStack) shutdown(ctx context.Context) error {
	var errs []error
	if d.running != nil {
		errs = append(errs, d.clear(context.WithoutCancel(ctx)))
		d.stop()
		errs = append(errs, d.running.Wait())
	}
	if d.parts != nil {
		d.parts.Close(d.log)
	}
	if d.redis != nil {
		errs = append(errs, d.redis.Stop())
	}
	if d.postgres != nil {
		errs = append(errs, d.postgres.Stop())
	}
	if err := os.Remove(filepath.Join(d.dir, databaseFile)); !errors.Is(err, os.ErrNotExist) {
		errs = append(errs, err)
	}
	if d.logFile != nil {
		errs = append(errs, d.logFile.Close())
	}
	return errors.Join(errs...)
}

// clear removes every live sandbox, as their owner would.
func (d *devStack) clear(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, clearTime)
	defer cancel()
	client := jobs.NewClient(d.parts.Store, d.parts.Queue, jobs.Catalog{}, d.log)
	for {
		live, err := d.liveSandboxes(ctx)
		if err != nil || len(live) == 0 {
			return err
		}
		for _, b := range live {
			if b.State != models.SandboxDeleting {
				_, err = client.Delete(ctx, b.ID, true, jobs.Options{TenantID: b.TenantID, Actor: "sandyard dev"})
			}
		}
		select {
		case <-time.After(50 * time.Millisecond):
		case <-ctx.Done():
			return errors.Join(err, fmt.Errorf("%d sandboxes are left; the next start ends them at their timeout", len(live)))
		}
	}
}

func (d *devStack) liveSandboxes(ctx context.Context) ([]models.Sandbox, error) {
	return d.parts.Store.LiveSandboxes(ctx, 100)
}
