package http

// checkoutTexts are the texts of checkoutProblems.
var checkoutTexts = map[string]problemText{
	codeOutOfStock: {
		What: "The checkout could not reserve every item. The items that had been reserved were released, and the order was " +
			"canceled. The card was not charged; if the money was reserved first, it was released, or returned if others " +
			"had captured it. The member checkout shows each step.",
		Retry: "Not with this key: it returns this response every time. Order a smaller quantity, or wait until " +
			"there is more stock, and send a new checkout with a new key.",
	},
}
