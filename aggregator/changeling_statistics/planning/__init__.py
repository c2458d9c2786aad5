"""The best release plan for a population and a budget, beside others, and how accurate any plan will be. Pure."""
