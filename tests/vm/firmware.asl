// SPDX-License-Identifier: Apache-2.0 OR MIT
//
// ACPI table of a host with two CPUs and a temperature sensor. With SLOW defined it is that of a slow host: reading the
// sensor keeps a CPU busy for a tenth of a second and more, and there are CPU frequencies, of which the highest is the
// processor's base clock.
//
// The objects are those that the ACPI specification has for processor performance (_PCT, _PSS, _PPC, _PSD) and thermal
// zones (_TMP, _CRT). A real sensor is slow because of the bus that it sits behind; here the CPU spins, as it does when
// it polls such a bus.
DefinitionBlock ("", "SSDT", 2, "DEBURR", "SENSOR", 0x00000001)
{
#ifdef SLOW
    External (\_SB.CPUS.C000, DeviceObj)
    External (\_SB.CPUS.C001, DeviceObj)

    Scope (\_SB.CPUS.C000)
    {
        // IO ports without a device.
        Name (_PCT, Package ()
        {
            ResourceTemplate () { Register (SystemIO, 16, 0, 0x8900) },
            ResourceTemplate () { Register (SystemIO, 16, 0, 0x8902) }
        })
        // Frequency in MHz, power in mW, transition latency in us, bus master latency in us, control, status.
        Name (_PSS, Package ()
        {
            Package () { 2000, 20000, 10, 10, 0, 0 },
            Package () { 1600, 16000, 10, 10, 1, 1 },
            Package () { 1200, 12000, 10, 10, 2, 2 }
        })
        Method (_PPC, 0, NotSerialized) { Return (0) }
        Name (_PSD, Package () { Package () { 5, 0, 0, 0xFD, 1 } })
    }

    Scope (\_SB.CPUS.C001)
    {
        Name (_PCT, Package ()
        {
            ResourceTemplate () { Register (SystemIO, 16, 0, 0x8904) },
            ResourceTemplate () { Register (SystemIO, 16, 0, 0x8906) }
        })
        Name (_PSS, Package ()
        {
            Package () { 2000, 20000, 10, 10, 0, 0 },
            Package () { 1600, 16000, 10, 10, 1, 1 },
            Package () { 1200, 12000, 10, 10, 2, 2 }
        })
        Method (_PPC, 0, NotSerialized) { Return (0) }
        Name (_PSD, Package () { Package () { 5, 0, 1, 0xFD, 1 } })
    }

#endif
    Scope (\_TZ)
    {
        ThermalZone (TZ00)
        {
            Method (_TMP, 0, Serialized)
            {
#ifdef SLOW
                Local0 = 1000
                While (Local0)
                {
                    Stall (100)
                    Local0--
                }
#endif
                // Tenths of a kelvin: 45 degrees Celsius.
                Return (3182)
            }
            Method (_CRT, 0, NotSerialized) { Return (4000) }
        }
    }
}
