// Command fiber-idempotency is a shop whose keys are those of fiber's middleware idempotency, as its documentation says. It
// prints its address, and counts what it has made.
package main

import (
	"fmt"
	"net"
	"sync"
	"time"

	"github.com/gofiber/fiber/v2"
	"github.com/gofiber/fiber/v2/middleware/idempotency"
)

func main() {
	var mu sync.Mutex
	made := map[string]int{}
	app := fiber.New(fiber.Config{DisableStartupMessage: true})
	app.Get("/things", func(c *fiber.Ctx) error { return c.JSON([]string{}) })
	app.Get("/effects", func(c *fiber.Ctx) error {
		mu.Lock()
		defer mu.Unlock()
		return c.JSON(fiber.Map{"count": made[c.Get("Tenant")+" "+c.Query("thing")]})
	})
	responses := &storage{}
	app.Post("/expire", func(*fiber.Ctx) error { return responses.Reset() })
	failing := sync.Map{} // things whose next request fails after its effect
	app.Post("/fail", func(c *fiber.Ctx) error { failing.Store(string([]byte(c.Query("thing"))), true); return nil })
	app.Use(idempotency.New(idempotency.Config{Storage: responses}))
	do := func(c *fiber.Ctx) error {
		var body struct{ Thing, Colour string }
		if err := c.BodyParser(&body); err != nil {
			return err
		}
		if body.Colour == "none" {
			return c.Status(fiber.StatusPaymentRequired).JSON(fiber.Map{"declined": true})
		}
		time.Sleep(20 * time.Millisecond) // a payment provider
		thing := c.Get("Tenant") + " " + body.Thing
		mu.Lock()
		made[thing]++
		mu.Unlock()
		if _, fails := failing.LoadAndDelete(body.Thing); fails {
			return fiber.ErrInternalServerError
		}
		return c.Status(fiber.StatusCreated).JSON(fiber.Map{"made": thing, "at": c.Path()})
	}
	app.Post("/things", do)
	app.Post("/others", do)
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		panic(err)
	}
	fmt.Printf("http://%s\n", listener.Addr())
	panic(app.Listener(listener))
}

// storage keeps responses until it is reset.
type storage struct{ responses sync.Map }

func (s *storage) Get(key string) ([]byte, error) {
	response, _ := s.responses.Load(key)
	b, _ := response.([]byte)
	return b, nil
}

func (s *storage) Set(key string, response []byte, _ time.Duration) error {
	s.responses.Store(key, response)
	return nil
}

func (s *storage) Delete(key string) error { s.responses.Delete(key); return nil }
func (s *storage) Reset() error            { s.responses.Clear(); return nil }
func (s *storage) Close() error            { return nil }
