package stripesim

import "strings"

const expandDepth = 4

// expand replaces the references a request asks for by the objects themselves.
// The objects are copied first: what is stored keeps its ids.
func (t *tx) expand(result any, c *call) (any, *apiError) {
	for _, path := range c.params.strings("expand") {
		parts := strings.Split(path, ".")
		if len(parts) > expandDepth {
			return nil, invalid(
				"", "", "You cannot expand more than %d levels of a property. Property: %s", expandDepth, path,
			)
		}
		if l, ok := result.(*list); ok {
			if parts[0] != "data" {
				return nil, invalid(
					"", "", "This property cannot be expanded (%s). You may want to try expanding 'data.%s' instead.",
					path, path,
				)
			}
			for i, o := range l.Data {
				grown, ok := t.grow(o, parts[1:])
				if !ok {
					return nil, invalid("", "", "This property cannot be expanded (%s).", path)
				}
				l.Data[i] = grown
			}
			continue
		}
		grown, ok := t.grow(result, parts)
		if !ok {
			return nil, invalid("", "", "This property cannot be expanded (%s).", path)
		}
		result = grown
	}
	return result, nil
}

// grow returns a copy of o in which the property at the path is an object.
func (t *tx) grow(o any, path []string) (any, bool) {
	if len(path) == 0 {
		return o, true
	}
	if ch, isCharge := o.(*charge); isCharge && path[0] == "refunds" {
		out := *ch
		out.Refunds = t.refundsOf(ch)
		return &out, true
	}
	out, slot := slotOf(o, path[0])
	if slot == nil {
		return nil, false
	}
	target := t.resolve(path[0], *slot)
	if target == nil { // null stays null
		return out, true
	}
	grown, ok := t.grow(target, path[1:])
	*slot = grown
	return out, ok
}

// slotOf copies an object and points at one of its references.
func slotOf(o any, name string) (any, *ref) {
	switch o := o.(type) {
	case *intent:
		out := *o
		switch name {
		case "latest_charge":
			return &out, &out.LatestCharge
		case "payment_method":
			return &out, &out.PaymentMethod
		}
	case *charge:
		out := *o
		switch name {
		case "balance_transaction":
			return &out, &out.BalanceTransaction
		case "payment_intent":
			return &out, &out.PaymentIntent
		}
	case *refund:
		out := *o
		switch name {
		case "balance_transaction":
			return &out, &out.BalanceTransaction
		case "charge":
			return &out, &out.Charge
		case "payment_intent":
			return &out, &out.PaymentIntent
		}
	case *dispute:
		out := *o
		switch name {
		case "charge":
			return &out, &out.Charge
		case "payment_intent":
			return &out, &out.PaymentIntent
		}
	case *txn:
		out := *o
		if name == "source" {
			return &out, &out.Source
		}
	}
	return nil, nil
}

// resolve finds the object a reference means; an object already expanded is
// itself.
func (t *tx) resolve(name string, r ref) any {
	if o, already := r.(object); already {
		return o
	}
	st, key := t.s.st, id(r)
	switch name {
	case "latest_charge", "charge":
		return found(st.charges, key)
	case "payment_intent":
		return found(st.intents, key)
	case "payment_method":
		return found(st.methods, key)
	case "balance_transaction":
		if b, ok := st.txns.byID[key]; ok {
			return b.asOf(t.now)
		}
	case "source":
		for _, o := range []any{found(st.charges, key), found(st.refunds, key), found(st.disputes, key)} {
			if o != nil {
				return o
			}
		}
	}
	return nil
}

func found[T object](tab table[T], id string) any {
	if o, ok := tab.byID[id]; ok {
		return o
	}
	return nil
}

// staleBody is the answer as it would have been one version ago.
func (t *tx) staleBody(result any, c *call) []byte {
	if !c.fault.is(Stale) {
		return nil
	}
	o, ok := result.(object)
	if !ok || o.meta().prev == nil {
		return nil
	}
	old, err := t.expand(o.meta().prev, c)
	if err != nil {
		return nil
	}
	return render(old)
}
