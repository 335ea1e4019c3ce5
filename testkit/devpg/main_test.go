package devpg

import (
	"context"
	"fmt"
	"os"
	"testing"
)

// Some tests need a process to kill: they run this test binary again, with a role.
const roleVar = "DEVPG_TEST_ROLE"

func TestMain(m *testing.M) {
	switch os.Getenv(roleVar) {
	case "":
		os.Exit(m.Run())
	case "owner": // starts a server, says where, and waits to be killed
		s, err := Start(context.Background(), Options{Only: FromLocal})
		if err != nil {
			fmt.Println("error:", err)
			os.Exit(1)
		}
		p := s.impl.(*process)
		fmt.Println(s.PID(), p.tidy.pid(), p.dir)
		select {}
	}
}
