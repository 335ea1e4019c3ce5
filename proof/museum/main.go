package main

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strings"
	"time"

	"example.com/payonce/proof/internal/inventory"
	"example.com/payonce/testkit/devpg"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	err := run(ctx, os.Args[1:], os.Stdout)
	stop()
	if err != nil && !errors.Is(err, flag.ErrHelp) {
		fmt.Fprintln(os.Stderr, "museum:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string, out io.Writer) error {
	flags := flag.NewFlagSet("museum", flag.ContinueOnError)
	only := flags.String("only", "", "visit only exhibits with this in their name")
	crowd := flags.Int("customers", crowdDefault, "customers of each scenario")
	readme := flags.String("markdown", "",
		"write the table into this file, between its marks; a relative path starts at the repository's root")
	if err := flags.Parse(args); err != nil {
		return err
	}
	if *crowd < crowdMin {
		return fmt.Errorf("-customers: some exhibits need %d", crowdMin)
	}
	server, err := devpg.Start(ctx, devpg.Options{
		URL: os.Getenv("DATABASE_URL"), URLVar: "DATABASE_URL", MaxConnections: 150,
		Log: func(format string, args ...any) { fmt.Fprintf(out, format+"\n", args...) },
	})
	if err != nil {
		return err
	}
	defer func() { _ = server.Stop() }()
	m, err := open(ctx, server.URL, *crowd)
	if err != nil {
		return err
	}
	defer m.close()

	began := time.Now()
	tour, visitErr := m.tour(ctx, out, *only)
	visited := 0
	for _, t := range tour {
		visited += len(t.findings)
	}
	if visited == 0 {
		return fmt.Errorf("no exhibit has %q in its name", *only)
	}
	fmt.Fprintf(out, "\n%d exhibits in %.1f s. The last column is payonce, the service itself: the same scenario, "+
		"provider and broker.\n", visited, time.Since(began).Seconds())
	footnotes(out)
	if visitErr != nil || *readme == "" {
		return visitErr
	}
	return rewrite(inventory.Path(*readme), tour)
}

// tourOf is what was found in one room.
type tourOf struct {
	room     string
	findings []finding
}

// tour visits every exhibit with only in its name, and prints what it finds.
func (m *museum) tour(ctx context.Context, out io.Writer, only string) (tour []tourOf, err error) {
	fmt.Fprintln(out)
	heading(out)
	for _, room := range rooms {
		t := tourOf{room: room.title}
		for _, e := range room.exhibits {
			if !strings.Contains(e.name, only) {
				continue
			}
			if len(t.findings) == 0 {
				fmt.Fprintf(out, "\n%s\n\n", room.title)
			}
			f, visitErr := m.visit(ctx, e)
			err = errors.Join(err, visitErr)
			row(out, f)
			t.findings = append(t.findings, f)
		}
		if t.findings != nil {
			tour = append(tour, t)
		}
	}
	return tour, err
}

// The marks between which the table stands in a document.
const (
	tableBegins = "<!-- table: written by go run -C proof ./museum -markdown proof/museum/README.md -->\n"
	tableEnds   = "<!-- end of the table -->"
)

func rewrite(path string, tour []tourOf) error {
	text, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	before, rest, begins := strings.Cut(string(text), tableBegins)
	_, after, ends := strings.Cut(rest, tableEnds)
	if !begins || !ends {
		return fmt.Errorf("%s has no place for the table: %s… %s", path, tableBegins, tableEnds)
	}
	var table bytes.Buffer
	markdown(&table, tour)
	return os.WriteFile(path, []byte(before+tableBegins+table.String()+"\n"+tableEnds+after), 0o644)
}
