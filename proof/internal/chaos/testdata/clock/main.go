// Command clock says what time it is, and how long a tenth of a second takes.
package main

import (
	"fmt"
	"time"
)

func main() {
	began := time.Now()
	time.Sleep(100 * time.Millisecond)
	fmt.Println(began.Unix(), time.Since(began).Milliseconds())
}
