package loop

import (
	"errors"
	"fmt"

	"sandyard/models"
)

// OfSandbox says whose error it is. That another scheduler was quicker is none.
func OfSandbox(id string, err error) error {
	if err == nil || errors.Is(err, models.ErrNotDue) {
		return nil
	}
	return fmt.Errorf("sandbox %s: %w", id, err)
}
