//go:build !race

package web_test

// raceMemory is how many times the memory of a process without the race detector this one may take.
const raceMemory = 1
