package docker

import (
	"encoding/json"
	"errors"
	"io"
)

// drainPull reads the progress of a pull to its end, which is when the image is there. The engine reports a pull that
// failed half-way only inside this stream.
func drainPull(progress io.Reader) error {
	lines := json.NewDecoder(progress)
	for {
		var line struct {
			Error string `json:"error"`
		}
		switch err := lines.Decode(&line); {
		case errors.Is(err, io.EOF):
			return nil
		case err != nil:
			return err
		case line.Error != "":
			return errors.New(line.Error)
		}
	}
}
