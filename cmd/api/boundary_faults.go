//go:build faults

package main

import (
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"
)

// boundary injects the faults of the variable FAULT_AT, right after a recovery point is durable:
// "create_payment/payment_recorded=kill" sends SIGKILL to this process, "…=stop" stops it until it gets SIGCONT,
// "…=sleep:2s" delays it. Several are separated by commas; each fires once. A consumer has a boundary, too, after the
// effect of an event and before its acknowledgement: "CONSUMER/payment.succeeded=kill".
func boundary(getenv func(string) string) func(operation, recoveryPoint string) {
	faults := make(chan map[string]string, 1)
	m := map[string]string{}
	for entry := range strings.SplitSeq(getenv("FAULT_AT"), ",") {
		if at, fault, ok := strings.Cut(entry, "="); ok {
			m[at] = fault
		}
	}
	faults <- m
	return func(operation, recoveryPoint string) {
		m := <-faults
		fault, at := m[operation+"/"+recoveryPoint], operation+"/"+recoveryPoint
		delete(m, at)
		faults <- m
		switch verb, arg, _ := strings.Cut(fault, ":"); verb {
		case "kill":
			_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
			select {}
		case "stop":
			// The signal may reach another thread first. Without this wait, code after the boundary could run before
			// the whole process is stopped.
			continued := make(chan os.Signal, 1)
			signal.Notify(continued, syscall.SIGCONT)
			_ = syscall.Kill(os.Getpid(), syscall.SIGSTOP)
			<-continued
			signal.Stop(continued)
		case "sleep":
			if d, err := time.ParseDuration(arg); err == nil {
				time.Sleep(d)
			}
		}
	}
}
