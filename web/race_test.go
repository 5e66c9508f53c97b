//go:build race

package web_test

// raceMemory is how many times the memory of a process without the race detector one with it may take: the detector keeps
// notes on what is in memory.
const raceMemory = 2
