package pool

import "time"

// defaultPatience is the default of Config.Patience.
const defaultPatience = 30 * time.Second

// Config says how many started containers wait, each with a guest that has answered, for sandboxes to become.
type Config struct {
	// Size is how many wait of each image that Ensure was called for, until Stock says what is to wait. 0 = no pool.
	Size int
	// Max is how many of them may wait when as many sandboxes were made within the last minute.
	Max int
	// Patience is how long containers in waiting live on when their worker has died. 0 = half a minute.
	Patience time.Duration
}

func (c Config) complete() Config {
	if c.Patience <= 0 {
		c.Patience = defaultPatience
	}
	c.Max = max(c.Max, c.Size)
	return c
}
