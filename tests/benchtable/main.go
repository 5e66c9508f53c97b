// Command benchtable turns the output of go test -bench, on its standard input, into a table of comparisons, and with
// -json FILE also into a JSON array. It reads what package dev/versus reports and passes on what is not a comparison.
package main

import (
	"flag"
	"fmt"
	"io"
	"os"
)

func main() {
	path := flag.String("json", "", "also write the comparisons to this file")
	flag.Parse()
	if err := run(os.Stdin, os.Stdout, os.Stderr, *path); err != nil {
		fmt.Fprintln(os.Stderr, "benchtable:", err)
		os.Exit(1)
	}
}

// run writes the table to out and everything else that in holds to rest, as it comes: failures are in there.
func run(in io.Reader, out, rest io.Writer, path string) error {
	rows, err := read(in, rest)
	if err != nil {
		return err
	}
	if len(rows) == 0 {
		return fmt.Errorf("no comparison in the input")
	}
	if err := table(out, rows); err != nil || path == "" {
		return err
	}
	f, err := os.Create(path)
	if err != nil {
		return err
	}
	defer f.Close()
	if err := asJSON(f, rows); err != nil {
		return err
	}
	return f.Close()
}
