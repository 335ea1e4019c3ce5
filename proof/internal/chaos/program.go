package chaos

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"
)

// Exit statuses of the programs that run this harness.
const (
	Violated = 1 // something was violated, or too little was broken to mean anything
	CouldNot = 2 // the run could not be carried out
)

// Main is the main function of a program that runs this harness. The program is the broker's process as well (brokerRole).
// Otherwise it exits with what run returns, whose context an interrupt cancels.
func Main(name string, run func(ctx context.Context, args []string, stdout, stderr io.Writer) int) {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if len(os.Args) == 4 && os.Args[1] == brokerRole {
		if err := serveBroker(ctx, os.Args[2], os.Args[3], os.Stderr); err != nil {
			fmt.Fprintln(os.Stderr, name+":", err)
			os.Exit(CouldNot)
		}
		return
	}
	os.Exit(run(ctx, os.Args[1:], os.Stdout, os.Stderr))
}
